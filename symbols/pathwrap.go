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

// wraps tells of a type that values of it stand for what they wrap or own.
func (w *way) wraps() bool {
	switch x := w.typ.printer(w.lang).(type) {
	case owner:
		return !x.isWeak
	case inner:
		return true
	}
	return false
}

// enter goes to what has the member, behind owners and wrappers that have none of that name. Those of Rust's have none that a source may name.
func (w *way) enter(member string) error {
	for range deepest {
		if w.typ == nil {
			return nil
		}
		if _, _, ok := w.typ.member(member, map[*dtype]bool{}); ok && (w.lang != langRust || !w.wraps()) {
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
