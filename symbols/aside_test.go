package symbols

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestNobodyWaitsForAQuestionThatIsGivenUp: neither who has asked it nor who closes the table; and it is answered all the same, from open files.
func TestNobodyWaitsForAQuestionThatIsGivenUp(t *testing.T) {
	table, err := OpenFile(testprog.Build(t, "prey"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	began, goOn, answered := make(chan bool), make(chan bool), make(chan error)
	go func() {
		<-began
		cancel()
	}()
	if err := table.Aside(ctx, func() {
		close(began)
		<-goOn
		_, err := table.Resolve(t.Context(), "foo")
		answered <- err
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("the question ends with %v", err)
	}
	if _, err := table.Resolve(ctx, "foo"); !errors.Is(err, context.Canceled) {
		t.Errorf("a later one with %v", err)
	}
	if err := table.Close(); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-answered; err != nil {
		t.Errorf("it was answered with %v", err)
	}
}

// TestAPanicIsThatOfWhoAsks: on the tracer's thread one ends a session, on any other goroutine the tracer.
func TestAPanicIsThatOfWhoAsks(t *testing.T) {
	table, err := OpenFile(testprog.Build(t, "prey"))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer func() {
		if recover() != "here" {
			t.Error("the panic went elsewhere")
		}
	}()
	_ = table.Aside(ctx, func() { panic("here") })
}
