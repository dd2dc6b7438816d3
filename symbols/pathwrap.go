package symbols

// owned goes to what an owner leads to. isOwner is false if w is no owner.
func (w *way) owned() (isOwner bool, err error) {
	x, ok := w.typ.printer(w.lang).(owner)
	if !ok || x.isWeak { // what a weak pointer leads to may be gone
		return false, nil
	}
	if err := w.inside(x.addr, wordType); err != nil {
		return true, err
	}
	w.follow(x.elem)
	return true, w.inside(x.into, x.elem)
}

// enter goes to what has the member, behind owners and wrappers that have none of that name.
func (w *way) enter(member string) error {
	for range deepest {
		if w.typ == nil {
			return nil
		}
		if _, _, ok := w.typ.member(member, map[*dtype]bool{}); ok {
			return nil
		}
		if isOwner, err := w.owned(); err != nil {
			return err
		} else if !isOwner && !w.unwrap() {
			return nil
		}
	}
	return nil
}

// unwrap goes to the value that is shown instead of a wrapper of it.
func (w *way) unwrap() bool {
	x, ok := w.typ.printer(w.lang).(inner)
	return ok && w.inside(x.off, x.typ) == nil
}
