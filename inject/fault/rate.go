package fault

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is at most N calls in any stretch of time that is Per long. The zero value is no
// limit.
type Rate struct {
	N   uint64
	Per time.Duration
}

// maxRate bounds what a limit has to remember: when its last N calls were.
const maxRate = 1 << 20

// ParseRate reads a number and a time: "5/s", "10/m", "3/100ms", "1/2h". Nothing is no
// limit.
func ParseRate(s string) (Rate, error) {
	if s == "" {
		return Rate{}, nil
	}
	number, per, _ := strings.Cut(s, "/")
	if strings.IndexFunc(per, isDigit) < 0 {
		per = "1" + per
	}
	n, nerr := strconv.ParseUint(number, 10, 64)
	d, derr := time.ParseDuration(per)
	if nerr != nil || derr != nil {
		return Rate{}, fmt.Errorf("rate %q is not a number of calls in a time, such as 5/s or 3/100ms", s)
	}
	r := Rate{n, d}
	if n == 0 || d == 0 {
		return Rate{}, fmt.Errorf("rate %q: number and time must be positive", s)
	}
	return r, r.check()
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

func (r Rate) check() error {
	switch {
	case r == Rate{}:
		return nil
	case r.N == 0 || r.Per <= 0:
		return fmt.Errorf("rate %v: number and time must be positive", r)
	case r.N > maxRate:
		return fmt.Errorf("rate %v: more than %d calls can't be limited; take a shorter time", r, maxRate)
	}
	return nil
}

// String returns the text that ParseRate reads as r.
func (r Rate) String() string {
	if r == (Rate{}) {
		return ""
	}
	per := r.Per.String()
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if r.Per == u.d {
			per = u.name
		} else if r.Per%u.d == 0 && r.Per > 0 {
			per = strconv.FormatInt(int64(r.Per/u.d), 10) + u.name
		} else {
			continue
		}
		break
	}
	return strconv.FormatUint(r.N, 10) + "/" + per
}

// A window remembers the last times at which something happened that may happen at a
// Rate.
type window struct {
	times []time.Time // a ring once it has r.N of them
	next  int         // the oldest of the ring
}

// allows reports whether a call may fail now. If so, it counts that call.
func (w *window) allows(r Rate, now time.Time) bool {
	if r.N == 0 {
		return true
	}
	if uint64(len(w.times)) < r.N {
		w.times = append(w.times, now)
		return true
	}
	if now.Sub(w.times[w.next]) < r.Per {
		return false
	}
	w.times[w.next] = now
	w.next = (w.next + 1) % len(w.times)
	return true
}
