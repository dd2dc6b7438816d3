package trace

// DurationMark is the mark to print in front of Duration: nothing if it is exact; ~ if the thread was stopped in the call; ~< if the call took less, and
// nothing more is known.
func (h *Hit) DurationMark() string {
	switch {
	case h.Stops == 0:
		return ""
	case h.DurationMin > 0:
		return "~"
	}
	return "~<"
}
