package trace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// ReturnSuffix ends a SPEC, and the name of a place, that stands for the returns of a function.
const ReturnSuffix = "%return"

// everySuffix ends a SPEC that stands for every instruction of a function.
const everySuffix = "+*"

// Place is one address that a SPEC stands for.
type Place struct {
	// Name is the place as hits show it: the SPEC, or of a pattern the function.
	Name string
	// Addr is 0 while its library is not loaded.
	Addr arch.Addr
	// Symbol is a SPEC that means this place alone. It finds the place again when the library is loaded again, or when a followed
	// process executes another file. It is empty if there is none.
	Symbol string
	// Waits says that the place is in a library that is not loaded yet.
	Waits bool
	// Pattern says that a place that waits means several, which are known when the library is loaded.
	Pattern bool
	// Return tells that the calls of the function at Addr are followed to their returns.
	Return bool
	// Optional places come from a pattern: one that can't be probed is skipped.
	Optional bool

	spec    string // of the pattern that other programs are searched for as well; empty for none
	module  string // where a pattern has found it
	missing error  // why a pattern waits

	inlined *symbols.InlinedCall // nil for other places
	every   bool                 // one of all instructions of a function
	isLine  bool                 // one of several of a line
}

// PlaceError is why a probe can't be placed.
type PlaceError struct {
	Spec string // or the name of one of its places
	Err  error
}

// Error implements error.
func (e *PlaceError) Error() string {
	if strings.TrimSpace(e.Spec) == "" {
		return fmt.Sprintf("cannot place a probe by %s: %v", escape.Spec(e.Spec), e.Err)
	}
	return fmt.Sprintf("cannot place probe %s: %v", escape.Spec(e.Spec), e.Err)
}

// Unwrap is the cause: an error of package symbols or kprobes.
func (e *PlaceError) Unwrap() error { return e.Err }

// NewPlaceError is a PlaceError without the words that err has for the place: the session names it by its address.
func NewPlaceError(spec string, err error) *PlaceError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) == 1 {
		err = joined.Unwrap()[0]
	}
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "probe ") {
		err = inner
	}
	return &PlaceError{spec, err}
}

// Resolver turns SPECs into places. It is for one goroutine.
type Resolver struct {
	Table *symbols.Table
	// Memory is the target's, without patches. Without it, +* (every instruction) is refused with ErrEveryInstruction.
	Memory arch.Memory
	// Returns makes all places those of returns, as ReturnSuffix makes them of one SPEC.
	Returns bool
	// Unique fills in Place.Symbol for the places of patterns too, which takes longer.
	Unique bool
	// Again has Unique do so for instructions as well, and a pattern with one place named by that: for libraries that come and go.
	Again bool
	// Programs has names and patterns wait that nothing has: for a program, executed later, that has them (kprobes.Options.AwaitPrograms).
	// It implies Unique, for instructions too.
	Programs bool
	// Inlined says which inlined calls a function's name stands for.
	Inlined InlinedCalls
	// Partial lists names that may have more inlined calls: not all of the debug information was read.
	Partial []string
	// Skipped counts instructions that +* stands for and that can't be probed.
	Skipped Skipped

	code *kprobes.Code // nil before it is needed
}

var (
	// ErrEveryInstruction refuses +* where a function is needed.
	ErrEveryInstruction = errors.New("+* stands for every instruction, which is not possible here; name a function")

	errEveryReturn = fmt.Errorf("a call is followed from the entry of its function, so +* has no meaning with returns: %w", kprobes.ErrNotEntry)
)

// Resolve lists the places of all SPECs, in their order, or gives the *PlaceError of the first that has none. A pattern never stands for the
// same place twice. If ctx is done first, the error is ctx.Err(), at once.
func (r *Resolver) Resolve(ctx context.Context, specs ...string) ([]Place, error) {
	var places []Place
	for _, spec := range specs {
		found, err := r.resolve(ctx, spec)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, NewPlaceError(spec, err)
		}
		places = append(places, found...)
	}
	return places, nil
}

func (r *Resolver) resolve(ctx context.Context, spec string) ([]Place, error) {
	name, suffixed := strings.CutSuffix(spec, ReturnSuffix)
	atReturn := suffixed || r.Returns
	resolve := r.Table.Resolve
	if r.Again {
		resolve = r.Table.Find // a thread of the target waits
	}
	found, err := resolve(ctx, name)
	inlined, done := r.inlined(ctx, name, found, err)
	if len(inlined) > 0 {
		found = slices.DeleteFunc(found, isPart)
	}
	switch {
	case done != nil:
		return nil, done
	case len(inlined) > 0 && len(found) == 0 && !atReturn:
		return inlined, nil
	case r.waits(name, err) && atReturn && strings.HasSuffix(name, everySuffix):
		return nil, errEveryReturn
	case r.waits(name, err):
		return []Place{{Name: spec, Symbol: name, Waits: true, Pattern: isPattern(name), Return: atReturn, missing: err}}, nil
	case err != nil:
		return nil, err
	case atReturn && found[0].Every.Len() > 0:
		return nil, errEveryReturn
	}
	if isPattern(name) {
		for _, sym := range r.Table.Unbound(name) {
			r.Skipped.Add(fmt.Errorf("%s: %w", sym.Name, symbols.ErrIFuncUnbound))
		}
	}
	places, err := r.expand(ctx, name, found)
	if atReturn {
		for range inlined {
			r.Skipped.Add(errInlinedReturn)
		}
	}
	for i := range places {
		places[i].Return = atReturn
		if suffixed {
			places[i].Name += ReturnSuffix
		}
		if r.Programs && isPattern(name) {
			places[i].spec = spec
		}
	}
	if !atReturn {
		places = append(places, inlined...)
	}
	return places, err
}

// waits tells of the error for a SPEC that it is in a library that is not loaded, or that a program is awaited that has it.
func (r *Resolver) waits(spec string, err error) bool {
	none := func(these ...error) bool {
		return slices.ContainsFunc(these, func(e error) bool { return errors.Is(err, e) })
	}
	return none(symbols.ErrUnknownModule) && symbols.Library(spec) != "" ||
		r.Programs && !r.Again && none(symbols.ErrUnknownModule, symbols.ErrUnknownSymbol, symbols.ErrNoLine, symbols.ErrNoLines)
}

// anew tells that a pattern is resolved in others than the present program and its libraries, which may have more or fewer of its places.
func (r *Resolver) anew(spec string) bool { return r.Again || r.Programs && isPattern(spec) }

// isPattern tells of a SPEC in a library whether it may stand for several places.
func isPattern(spec string) bool { return strings.ContainsAny(spec, "*?[") }

// expand lists the places that one SPEC stands for.
func (r *Resolver) expand(ctx context.Context, spec string, found []symbols.Location) ([]Place, error) {
	if len(found) == 1 && found[0].Every.Len() == 0 && !r.anew(spec) {
		return []Place{{Name: spec, Addr: found[0].Addr, Symbol: spec}}, nil
	}
	if r.Unique || r.Programs {
		if err := r.Table.IndexNames(ctx); err != nil { // unique looks up the names of them all
			return nil, err
		}
	}
	var places []Place
	for _, loc := range found {
		switch {
		case loc.Every.Len() > 0 && r.Memory == nil:
			return nil, ErrEveryInstruction
		case loc.Every.Len() > 0:
			places = append(places, r.everyInsn(ctx, spec, loc)...)
		case loc.Line != 0:
			places = append(places, Place{Name: spec, Addr: loc.Addr, Optional: true, isLine: true})
		default:
			name := strings.TrimSuffix(loc.String(), "+0x0")
			places = append(places, Place{Name: name, Addr: loc.Addr, module: loc.Symbol.ModuleName(), Symbol: r.unique(ctx, spec, loc), Optional: true})
		}
	}
	return places, nil
}

// unique is a SPEC for loc alone, which pattern stands for, or empty. A function of the executable has no other name than in other programs,
// where the pattern names no module: their hits are counted together.
func (r *Resolver) unique(ctx context.Context, pattern string, loc symbols.Location) string {
	m := loc.Symbol.Module
	if !r.Unique && !r.anew(pattern) || m == nil || loc.Offset != 0 && !r.anew(pattern) {
		return ""
	}
	name := loc.Symbol.Linkage
	if loc.Offset != 0 {
		name += fmt.Sprintf("+%#x", loc.Offset)
	}
	means := func(spec string) bool {
		if r.Unique || r.Programs { // so the symbols were read, for IndexNames
			if at, ok := r.Table.Place(spec); ok {
				return at == loc.Addr
			}
		}
		found, err := r.Table.Find(ctx, spec)
		return err == nil && len(found) == 1 && found[0].Every.Len() == 0 && found[0].Addr == loc.Addr
	}
	if spec := name; r.Programs && m.Kind == symbols.KindExecutable && !symbols.NamesModule(pattern) && means(spec) {
		return spec
	}
	if spec := m.Name + ":" + name; means(spec) {
		return spec
	}
	return ""
}

// everyInsn lists the instructions of a function that its paths lead to. The rest may be data, which a
// breakpoint would change. A landing pad at its entry stays in place, so the instruction behind it is the first.
func (r *Resolver) everyInsn(ctx context.Context, spec string, loc symbols.Location) []Place {
	if r.code == nil {
		r.code = kprobes.NewCode(r.Table, r.Memory)
	}
	function := ""
	if r.anew(spec) {
		function = r.unique(ctx, spec, loc)
	}
	var places []Place
	rest := r.code.EachInsn(loc.Every, func(insn arch.Insn, why error) {
		if why != nil {
			r.Skipped.Add(why)
			return
		}
		at := loc
		at.Offset += uint64(insn.Addr - loc.Addr)
		at.Addr = insn.Addr
		symbol := ""
		if function != "" {
			symbol = fmt.Sprintf("%s+%#x", function, at.Offset)
		}
		places = append(places, Place{Name: at.String(), Addr: insn.Addr, module: loc.Symbol.ModuleName(), Symbol: symbol, Optional: true, every: true})
	})
	if rest != nil {
		r.Skipped.Add(rest)
	}
	return places
}
