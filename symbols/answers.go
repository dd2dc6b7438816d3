package symbols

import "sync"

// answers keeps what the last questions about the names in a symbol table have found, mostly nothing: a probe's name is looked for in each program that is
// executed, and most of these map the same libraries. What it takes is too little for the memory budget. It is safe for concurrent use.
type answers struct {
	isUsed bool // the table is one that others may ask, too

	mu   sync.Mutex
	kept map[string][]int32 // entries by question
}

// Limits of what is kept, for one symbol table.
const (
	mostAnswers     = 32
	longestQuestion = 96 // bytes
	longestAnswer   = 4  // entries
)

// to answers a question by asking, if it was not asked before.
func (a *answers) to(question string, ask func() []int32) []int32 {
	if !a.isUsed {
		return ask()
	}
	a.mu.Lock()
	found, known := a.kept[question]
	a.mu.Unlock()
	if known {
		return found
	}
	found = ask()
	if len(question) > longestQuestion || len(found) > longestAnswer {
		return found
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil || len(a.kept) >= mostAnswers {
		a.kept = map[string][]int32{}
	}
	a.kept[question] = found
	return found
}
