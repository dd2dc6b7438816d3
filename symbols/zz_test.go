package symbols
import ("testing";"os";"strconv";"strings";"time";"fmt";"runtime")
func TestZZ(t *testing.T) {
 pid, _ := strconv.Atoi(os.Getenv("ZZPID"))
 f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid)); if err != nil { t.Skip() }
 t0 := time.Now()
 tab, err := Open(pid, procMem{f}); if err != nil { t.Fatal(err) }
 t.Logf("open %v, %d modules", time.Since(t0), len(tab.Modules()))
 for _, m := range tab.Modules() { if m.Err != nil { t.Log(m.Path, m.Err) } }
 for _, spec := range strings.Split(os.Getenv("ZZSPEC"), ";") {
  t0 = time.Now()
  locs, err := tab.Resolve(spec)
  d := time.Since(t0)
  if len(locs) > 6 { t.Logf("%s: %v %d locs e.g. %v", spec, d, len(locs), locs[0]) } else {
  for _, l := range locs { t.Logf("%s: %v -> %v %v %s [%s] %s:%d", spec, d, l.Addr, l, l.Symbol.Module.Name, l.Symbol.Linkage, l.File, l.Line) } }
  if err != nil { t.Logf("%s: %v ERR %v", spec, d, err) }
 }
 n, bad := 0, 0
 t0 = time.Now()
 for _, s := range tab.Symbols("*") { if !s.IFunc { continue }; n++; if _, err := tab.Resolve(s.Module.Name+":"+s.Linkage); err != nil { bad++ ; if bad < 4 {t.Log(err)} } }
 t.Logf("%d ifuncs, %d unresolved, %v", n, bad, time.Since(t0))
 var ms runtime.MemStats; runtime.GC(); runtime.ReadMemStats(&ms); t.Logf("heap %d MB", ms.HeapAlloc>>20)
}
