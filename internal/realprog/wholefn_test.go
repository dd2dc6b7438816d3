package realprog

import (
	"slices"
	"strings"
	"testing"
)

// TestWholeFunctionsOfMemory: each implementation of memcpy, strlen and the like that
// this processor can run.
func TestWholeFunctionsOfMemory(t *testing.T) {
	bin := buildWork(t, "mem", "libc.a", "libc6-dev", "-static", "-fno-builtin", "-fno-tree-loop-distribute-patterns")
	// Copies that bypass the caches begin at the least size that may be chosen.
	w := startWork(t, disassemble(t, bin), bin, "GLIBC_TUNABLES=glibc.cpu.x86_non_temporal_threshold=16448")
	works := strings.Fields(strings.TrimPrefix(w.prog.Expect("works"), "works"))
	t.Logf("%d implementations: %v", len(works), works)
	for _, work := range works {
		t.Run(work, func(t *testing.T) {
			functions := []string{"__" + work}
			if strings.HasSuffix(work, "_unaligned") && slices.Contains(works, work+"_erms") {
				functions = append(functions, "__"+work+"_erms") // it goes on in there
			}
			w.test(t, work, functions...)
		})
	}
	w.quit(t)
}

// TestWholeFunctionsOfTheCLibrary: sorting, printing, the heap.
func TestWholeFunctionsOfTheCLibrary(t *testing.T) {
	bin := buildWork(t, "clib", "libc.a", "libc6-dev", "-static", "-fno-builtin")
	w := startWork(t, disassemble(t, bin), bin)
	for _, c := range []struct {
		work      string
		functions []string
	}{
		{"sort", []string{"qsort", "__qsort_r", "msort_with_tmp.part.0"}},
		{"print", []string{"__vfprintf_internal", "__printf_fp_l", "__printf_fphex", "hack_digit", "_itoa_word", "printf_positional",
			"__mpn_mul_1", "__mpn_divrem", "__mpn_lshift", "__mpn_rshift", "__mpn_mul", "__mpn_addmul_1", "__mpn_submul_1",
			"____strtod_l_internal"}},
		{"heap", []string{"malloc", "free", "__libc_realloc", "__libc_calloc", "_int_malloc", "_int_free", "_int_realloc", "_int_memalign",
			"malloc_consolidate", "unlink_chunk.constprop.0", "sysmalloc", "munmap", "mmap", "mremap", "brk"}},
	} {
		t.Run(c.work, func(t *testing.T) {
			w.varies = c.work == "heap" // it is not left as it was
			w.test(t, c.work, c.functions...)
		})
	}
	w.varies = true
	t.Run("locks", func(t *testing.T) {
		w.test(t, "locks", "___pthread_mutex_trylock", "___pthread_mutex_lock", "__pthread_mutex_unlock_usercnt",
			"__pthread_mutex_unlock",
			"__pthread_mutex_cond_lock", "__lll_lock_wait", "__lll_lock_wake", "__futex_abstimed_wait_common",
			"___pthread_cond_wait", "___pthread_cond_broadcast", "___pthread_rwlock_rdlock", "___pthread_rwlock_wrlock", "___pthread_rwlock_unlock")
	})
	w.quit(t)
}

// TestWholeFunctionsOfZlib: compression and what undoes it.
func TestWholeFunctionsOfZlib(t *testing.T) {
	bin := buildWork(t, "zip", "libz.a", "zlib1g-dev")
	w := startWork(t, disassemble(t, bin), bin)
	unpack := []string{"inflate", "inflate_fast", "inflate_table", "updatewindow", "adler32_z", "crc32_z"}
	pack := []string{"deflate", "fill_window", "_tr_flush_block", "_tr_tally", "build_tree", "compress_block", "scan_tree", "send_tree"}
	for _, c := range []struct {
		work      string
		functions []string
	}{
		{"fast", slices.Concat(pack, unpack, []string{"deflate_fast", "longest_match"})},
		{"slow", slices.Concat(pack, unpack, []string{"deflate_slow", "longest_match"})},
		{"plain", slices.Concat(pack, unpack, []string{"deflate_stored", "_tr_stored_block"})},
		{"sums", []string{"adler32_z", "crc32_z"}},
	} {
		t.Run(c.work, func(t *testing.T) { w.test(t, c.work, c.functions...) })
	}
	w.quit(t)
}
