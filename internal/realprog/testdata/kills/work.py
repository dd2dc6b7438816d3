# For each number N that it reads: N rounds of threads, processes and signals.
import signal, subprocess, sys, threading

caught = 0


def on_signal(number, frame):
    global caught
    caught += 1


def count(out, i, n):
    out[i] = sum(len(str(k)) for k in range(n))


def play(n):
    global caught
    total = 0
    for i in range(n):
        out = [0] * 4
        threads = [threading.Thread(target=count, args=(out, k, 100 * (k + 1))) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        total += sum(out)
        done = subprocess.run(["/bin/sh", "-c", "read x; echo $x; exit %d" % (i % 7)], input="said %d\n" % i, capture_output=True, text=True)
        if done.returncode != i % 7 or done.stdout != "said %d\n" % i:
            print("wrong", done, flush=True)
            sys.exit(1)
        before = caught
        signal.raise_signal(signal.SIGUSR1)
        total += caught - before
    return total


signal.signal(signal.SIGUSR1, on_signal)
for line in iter(sys.stdin.readline, ""):
    print("ran", int(line), play(int(line)), flush=True)
