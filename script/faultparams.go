package script

import (
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
)

// actions maps each parameter that names an action to the kind of that action.
var actions = map[string]string{
	"retval": "retval", "errno": "errno", "error": "error", "result": "result", "set": "set", "poke": "poke", "corrupt": "corrupt", "delay": "delay", "signal": "signal",
}

// set sets one parameter. A name that is none of inject's own is one of package fault's.
func (f *injection) set(name string, v starlark.Value) error {
	if kind, ok := actions[name]; ok {
		return f.addActions(kind, v)
	}
	r := &f.rule
	switch name {
	case "spec":
		return f.setSpec(v)
	case "syscall":
		return unpack(v, &r.Syscall)
	case "syscall_by":
		var err error
		r.SyscallBy, err = inject.ParseSyscallWay(text(v))
		return err
	case "name":
		return unpack(v, &r.Name)
	case "if_":
		return unpack(v, &r.If)
	case "args":
		var list texts
		err := list.Unpack(v)
		r.Args = list
		return err
	case "size":
		r.Size = text(v)
		return nil
	case "after":
		return unpack(v, &r.After)
	case "dry_run":
		return unpack(v, &r.DryRun)
	case "maxactive":
		return unpack(v, &r.MaxActive)
	case "handler":
		return unpack(v, &f.fn)
	}
	return f.setAttr(name, v)
}

func unpack(v starlark.Value, to any) error {
	return starlark.UnpackPositionalArgs("", starlark.Tuple{v}, nil, 1, to)
}

// setAttr sets an attribute of package fault: fail_nth for fail-nth, for_ for for.
func (f *injection) setAttr(name string, v starlark.Value) error {
	kernel := strings.ReplaceAll(strings.TrimSuffix(name, "_"), "_", "-")
	for _, n := range fault.Names() {
		if n.Name == kernel && f.s.several() && (strings.HasPrefix(kernel, "require-") || strings.HasPrefix(kernel, "reject-")) {
			return errors.New("it is an address in one process; choose by ctx.stack() in handler")
		}
		if n.Name == kernel {
			return f.rule.Attr.Set(kernel, attrText(v))
		}
	}
	return fmt.Errorf("there is no such parameter%s", nearest(name))
}

// attrText is a value as package fault reads it: a number with a point is a share, and
// True is Y.
func attrText(v starlark.Value) string {
	switch v := v.(type) {
	case starlark.Bool:
		if v {
			return "Y"
		}
		return "N"
	case starlark.Float:
		s := fmt.Sprintf("%g", float64(v))
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	}
	return text(v)
}

// addActions adds what a parameter says: one action, or those of a list or dict.
func (f *injection) addActions(kind string, v starlark.Value) error {
	var all []string
	switch v := v.(type) {
	case *starlark.Dict:
		for _, pair := range v.Items() {
			all = append(all, text(pair[0])+"="+text(pair[1]))
		}
	case *starlark.List, starlark.Tuple:
		for e := range starlark.Elements(v.(starlark.Iterable)) {
			all = append(all, text(e))
		}
	default:
		all = []string{text(v)}
	}
	for _, one := range all {
		a, err := inject.ParseAction(kind, one)
		if err != nil {
			return err
		}
		f.rule.Do = append(f.rule.Do, a)
	}
	return nil
}

// nearest suggests a parameter of inject for one that there is not.
func nearest(name string) string {
	known := []string{"spec", "syscall", "syscall_by", "name", "if_", "args", "size", "after", "dry_run", "maxactive", "handler", "for_"}
	for kind := range actions {
		known = append(known, kind)
	}
	for _, n := range fault.Names() {
		known = append(known, strings.ReplaceAll(n.Name, "-", "_"))
	}
	for _, k := range known {
		if strings.Contains(k, name) || strings.Contains(name, k) || oneOff(name, k) {
			return " (did you mean " + k + "?)"
		}
	}
	return ""
}

// oneOff tells of two words that one letter left out, added or changed makes one of the other.
func oneOff(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) == len(b) {
		return i >= len(a) || a[i+1:] == b[i+1:]
	}
	return a[i:] == b[i+1:]
}
