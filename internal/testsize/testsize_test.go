package testsize

import "testing"

func TestTheEnvironmentChoosesTheSize(t *testing.T) {
	tests := []struct {
		rounds, torture string
		want            int
	}{
		{"", "", 2},
		{"quick", "", 1},
		{"usual", "", 2},
		{"torture", "", 3},
		{"", "1", 3},
		{"quick", "1", 3},
	}
	for _, tt := range tests {
		t.Setenv("GOKPROBE_ROUNDS", tt.rounds)
		t.Setenv("GOKPROBE_TORTURE", tt.torture)
		if got := Rounds(1, 2, 3); got != tt.want || Torture() != (got == 3) {
			t.Errorf("GOKPROBE_ROUNDS=%s GOKPROBE_TORTURE=%s: %d, Torture %v, want %d", tt.rounds, tt.torture, got, Torture(), tt.want)
		}
	}
}

func TestAMistypedSizeIsRefused(t *testing.T) {
	t.Setenv("GOKPROBE_TORTURE", "")
	t.Setenv("GOKPROBE_ROUNDS", "tortur")
	defer func() {
		if recover() == nil {
			t.Error("it passes for a size")
		}
	}()
	Rounds(1, 2, 3)
}
