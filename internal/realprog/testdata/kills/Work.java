// For each number N that it reads: N rounds of threads, processes, exceptions and garbage.
import java.io.*;

public class Work {
    static long words(int n) {
        long sum = 0;
        for (int k = 1; k <= n; k++) sum += Integer.toString(k).length();
        return sum;
    }

    static long play(int n) throws Exception {
        long sum = 0;
        for (int i = 0; i < n; i++) {
            long[] out = new long[4];
            Thread[] threads = new Thread[4];
            for (int k = 0; k < 4; k++) {
                int at = k;
                threads[k] = new Thread(() -> out[at] = words(100 * (at + 1)));
                threads[k].start();
            }
            for (int k = 0; k < 4; k++) { threads[k].join(); sum += out[k]; }
            int code = new ProcessBuilder("/bin/sh", "-c", "exit " + i % 7).start().waitFor();
            if (code != i % 7) { System.out.println("wrong " + code); System.exit(1); }
            try { Object none = i < 0 ? "" : null; none.hashCode(); } catch (NullPointerException e) { sum += i; }
            if (i % 5 == 0) System.gc();
        }
        return sum;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            int n = Integer.parseInt(line.trim());
            System.out.println("ran " + n + " " + play(n));
            System.out.flush();
        }
    }
}
