// For each number N that it reads: N rounds of threads, processes, exceptions and garbage.
using System;
using System.Diagnostics;
using System.Threading;

static class Work {
	static long Words(int n) {
		long sum = 0;
		for (int k = 1; k <= n; k++) sum += k.ToString().Length;
		return sum;
	}
	static long Play(int n) {
		long sum = 0;
		for (int i = 0; i < n; i++) {
			var each = new long[4];
			var threads = new Thread[4];
			for (int k = 0; k < 4; k++) { int at = k; threads[k] = new Thread(() => each[at] = Words(100 * (at + 1))); threads[k].Start(); }
			for (int k = 0; k < 4; k++) { threads[k].Join(); sum += each[k]; }
			try { throw new InvalidOperationException(); } catch (InvalidOperationException) { sum += i; }
			try { object none = i < 0 ? "" : null; none.GetHashCode(); } catch (NullReferenceException) { sum += i; }
			if (i % 5 == 0) GC.Collect();
		}
		return sum;
	}
	static void Main() {
		for (string line; (line = Console.ReadLine()) != null; ) {
			int n = int.Parse(line);
			Console.WriteLine("ran {0} {1}", n, Play(n));
		}
	}
}
