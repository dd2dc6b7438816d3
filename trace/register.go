package trace

import "context"

// Register registers probes together. If some are refused all are, so each half is then tried for itself. A single one that is refused is left out
// if refused returns nil for it; any other error ends it. kept is those that are registered, also after an error.
func Register[P any](ctx context.Context, all []P, register func(context.Context, []P) error, refused func(P, error) error) (kept []P, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	err = register(ctx, all)
	switch {
	case err == nil:
		return all, nil
	case ctx.Err() != nil:
		return nil, err
	case len(all) == 1:
		return nil, refused(all[0], err)
	}
	half := len(all) / 2
	kept, err = Register(ctx, all[:half], register, refused)
	if err != nil {
		return kept, err
	}
	more, err := Register(ctx, all[half:], register, refused)
	return append(kept[:len(kept):len(kept)], more...), err
}
