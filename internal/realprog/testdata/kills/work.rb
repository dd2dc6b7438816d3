# For each number N that it reads: N rounds of threads, processes, signals and garbage.
require "open3"
$stdout.sync = true
caught = 0
trap("USR1") { caught += 1 }
while (line = $stdin.gets)
  n = line.to_i
  sum = 0
  n.times do |i|
    sum += 4.times.map { |k| Thread.new { (1..100 * (k + 1)).sum { |x| x.to_s.length } } }.sum(&:value)
    out, status = Open3.capture2("/bin/sh", "-c", "read x; echo $x; exit #{i % 7}", stdin_data: "said #{i}\n")
    abort "wrong #{out} #{status}" unless out == "said #{i}\n" && status.exitstatus == i % 7
    pid = fork { exit!(i % 5) }
    Process.wait(pid)
    abort "wrong child #{$?}" unless $?.exitstatus == i % 5
    before = caught
    Process.kill("USR1", Process.pid)
    Thread.pass until caught > before
    GC.start if i % 5 == 0
  end
  puts "ran #{n} #{sum}"
end
