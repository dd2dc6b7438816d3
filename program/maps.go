package program

import "fmt"

// MapKind tells how a map stores or sums its values.
type MapKind uint8

const (
	Counter MapKind = iota // counts hits
	Log2                   // histogram over the position of the highest bit
	Linear                 // histogram over buckets of the same width
	Ring                   // records in the order of their hits
	State                  // numbers that hits change, each hit seeing what those before have left
)

func (k MapKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("map kind %d", uint8(k))
}

var kindNames = [...]string{"counter", "log2 histogram", "linear histogram", "ring", "state"}

// Map describes a map. Its contents are in memory that tracer and target share, laid out
// as layout.go says, all zero at first.
type Map struct {
	Kind MapKind
	// Shards is the number of copies of a counter or histogram, a power of two; 0 is 1.
	// Each thread uses one of them, whichever; the map's value is the sum.
	Shards int
	// Min, Step, Buckets describe a linear histogram: bucket n holds the values from
	// Min+n·Step up to Min+(n+1)·Step, which are signed; two more hold the values below
	// and above.
	Min, Step int64
	Buckets   int
	// Size is the bytes of a ring that records may occupy, a power of two.
	Size int
	// Cells is the number of 64-bit words of a state. A program has one state at most. It is one memory
	// for all hits of a probe in an address space, whether the target or the tracer deals with them.
	Cells int
}

// Limits of maps.
const (
	MaxShards   = 256
	MaxBuckets  = 4096
	MaxRingSize = 1 << 30
	MinRingSize = 1 << 12
	MaxCells    = 512 // of a state
)

// Check returns an error if m is not possible.
func (m Map) Check() error {
	switch m.Kind {
	case Counter, Log2, Linear:
		if m.Shards < 0 || m.Shards > MaxShards || m.Shards&(m.Shards-1) != 0 {
			return fmt.Errorf("%s with %d shards: want a power of two up to %d", m.Kind, m.Shards, MaxShards)
		}
		if m.Kind == Linear {
			return m.checkLinear()
		}
	case State:
		if m.Cells < 1 || m.Cells > MaxCells {
			return fmt.Errorf("state of %d cells: want 1 to %d", m.Cells, MaxCells)
		}
	case Ring:
		if m.Size < MinRingSize || m.Size > MaxRingSize || m.Size&(m.Size-1) != 0 {
			return fmt.Errorf("ring of %d bytes: want a power of two from %d to %d", m.Size, MinRingSize, MaxRingSize)
		}
	default:
		return fmt.Errorf("unknown %s", m.Kind)
	}
	return nil
}

func (m Map) checkLinear() error {
	if m.Buckets < 1 || m.Buckets > MaxBuckets {
		return fmt.Errorf("linear histogram with %d buckets: want 1 to %d", m.Buckets, MaxBuckets)
	}
	if m.Step < 1 {
		return fmt.Errorf("linear histogram with step %d: want at least 1", m.Step)
	}
	span := uint64(m.Buckets) * uint64(m.Step)
	if span/uint64(m.Step) != uint64(m.Buckets) || span > uint64(maxInt64-m.Min) {
		return fmt.Errorf("linear histogram from %d by %d buckets of %d: beyond 64 bits", m.Min, m.Buckets, m.Step)
	}
	return nil
}

const maxInt64 = 1<<63 - 1

// shards is m.Shards with its default.
func (m Map) shards() int {
	if m.Kind == State {
		return 1
	}
	return max(m.Shards, 1)
}

// PerShard is the number of 64-bit cells of one shard that are used: 1 of a counter; one for
// each bucket of a histogram; all cells of a state. It is 0 for a ring.
func (m Map) PerShard() int {
	switch m.Kind {
	case Counter:
		return 1
	case Log2:
		return Log2Cells
	case Linear:
		return m.Buckets + 2
	case State:
		return m.Cells
	}
	return 0
}

// ShardStride is the bytes from one shard to the next, a multiple of LineSize.
func (m Map) ShardStride() int { return (m.PerShard()*8 + LineSize - 1) &^ (LineSize - 1) }

// Len is the bytes of shared memory that m occupies, a multiple of LineSize. Where it
// begins must be one too.
func (m Map) Len() int {
	if m.Kind == Ring {
		return RingData + m.Size
	}
	return m.shards() * m.ShardStride()
}
