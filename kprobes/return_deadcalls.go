package kprobes

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/frames"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// search looks for instances of rp that are dead, since it has run out of them. f is where
// own is now. Where there are none a search would only cost, so it is not repeated at once.
func (rp *Kretprobe) search(in *domain, own frames.Owner, f frames.Frame) {
	if rp.short > 0 {
		rp.short--
		return
	}
	rp.short = rp.MaxActive
	known := stacks{own: own, now: f.CFA, ends: map[int]arch.Addr{}}
	for ri := range rp.live {
		d := ri.domain
		if d == nil {
			continue // its EntryHandler runs
		}
		if d.followed.dead(ri, &known) {
			d.followed.miss(ri, MissUnreturned)
		}
	}
	rp.searchTable(in, &known)
	for _, end := range known.surveyed {
		end()
	}
}

// stacks is what a search has found out.
type stacks struct {
	own      frames.Owner // of whom it is certain: it enters the frame with the CFA now
	now      arch.Addr
	ends     map[int]arch.Addr  // stack pointers of threads, 0 where unknown
	surveyed map[*domain]func() // the ends of surveys
}

// dead tells whether ri is known to have ended: its place on the stack is not in use. A thread
// whose stack pointer is the call's CFA may have returned from it just now.
func (fo *followed) dead(ri *KretprobeInstance, known *stacks) bool {
	switch {
	case ri.call.Frame.Goroutine != 0 && ri.call.Owner == known.own:
		return ri.call.Frame.CFA > known.now
	case ri.call.Frame.Goroutine != 0:
		pc, sp, base, ok := host.Arch.Parked(ri.call.Frame.Goroutine, fo.d.space)
		return ok && (base < ri.call.Frame.CFA || base-ri.call.Frame.CFA < sp || fo.d.session.table.GoroutineEnd(pc))
	case !fo.holdsReturn(ri):
		return true
	case ri.call.Owner == known.own:
		return ri.call.Frame.CFA < known.now && known.sameStack(fo.d, ri.call.Frame.CFA, known.now)
	case ri.call.Owner.TID == 0:
		return false
	}
	sp := known.end(ri)
	return ri.call.Frame.CFA < sp && known.sameStack(fo.d, ri.call.Frame.CFA, sp)
}

// sameStack tells whether two addresses are in one mapping. That may hold several stacks, of
// coroutines: then some call that is alive is given up, as another would be for want of an
// instance.
func (k *stacks) sameStack(d *domain, a, b arch.Addr) bool {
	if k.surveyed[d] == nil {
		if k.surveyed == nil {
			k.surveyed = map[*domain]func(){}
		}
		k.surveyed[d] = d.look.anew()
	}
	m, err := d.look.surveyed().Mapping(a)
	return err == nil && m != nil && m.Range.Contains(b)
}

// holdsReturn tells whether ri's return address is where it was at the entry.
func (fo *followed) holdsReturn(ri *KretprobeInstance) bool {
	word, ok := fo.returnWord(ri)
	return ok && fo.relays.behind(word) == ri.RetAddr
}

// returnWord is what is now where ri's return address was at the entry.
func (fo *followed) returnWord(ri *KretprobeInstance) (word arch.Addr, ok bool) {
	r := host.Arch.NewRegs()
	r.SetSP(ri.sp)
	word, _, err := host.Arch.Caller(r, fo.d.space)
	return word, err == nil
}

// miss forgets a call, which is missed unless it has returned. It may be alive all the same: stacks of several threads may lie in one mapping.
func (fo *followed) miss(ri *KretprobeInstance, why Miss) {
	if fo.unlink(ri); ri.rewritten() {
		fo.relays.stray(ri.sp)
		fo.relays.out--
	}
	if !ri.returned {
		ri.probe.missed.add(why, 1)
	}
	ri.put()
}

// endReentered ends the followed calls in a frame that is entered now: they have ended,
// unless they share the hit, or may have made this call by a jump (C24). word stands in the place of its return address: who jumps leaves there what it had.
func (fo *followed) endReentered(f frames.Frame, word arch.Addr, hit uint64) {
	top := fo.calls.Top(f)
	if top != nil && top.hit != hit && (top.word != word || !top.entry.jumpsAway()) {
		fo.end(f, true)
	}
}

// endUnwound ends calls of own that are deeper than f. On a goroutine's one stack those are
// gone; a thread may have several.
func (fo *followed) endUnwound(own frames.Owner, f frames.Frame) {
	for ri := fo.calls.Latest(own); ri != nil; ri = fo.calls.Latest(own) {
		if !ri.call.Frame.Deeper(f) || own.TID != 0 && fo.holdsReturn(ri) {
			return
		}
		fo.end(ri.call.Frame, true)
	}
}

// end is where the stack of ri's thread ends, 0 if the thread runs.
func (k *stacks) end(ri *KretprobeInstance) arch.Addr {
	sp, ok := k.ends[ri.call.Owner.TID]
	if !ok {
		sp, _ = procfs.StackPointer(ri.call.Frame.PID, ri.call.Owner.TID)
		k.ends[ri.call.Owner.TID] = sp
	}
	return sp
}
