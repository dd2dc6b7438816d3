package script

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// The elements of a JUnit report, as far as the tools that read them agree (the schema of
// Apache Ant's junit task).
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Properties []junitProperty `xml:"properties>property,omitempty"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitProblem `xml:"failure"`
		Error   *junitProblem `xml:"error"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes a Result as JUnit's XML: a suite of the given name, a test case for
// each case. An expectation that was not met is a failure, a mistake in the scenario
// itself an error.
func (r Result) WriteJUnit(w io.Writer, name string) error {
	suite := junitSuite{
		Name: escape.Text(name), Tests: len(r.Cases), Time: seconds(r.Took), Timestamp: r.Began.UTC().Format("2006-01-02T15:04:05"),
		Properties: []junitProperty{{"seed", fmt.Sprint(r.Seed)}},
	}
	for _, c := range r.Counters {
		suite.Properties = append(suite.Properties, junitProperty{"counter " + escape.Text(c.Name), escape.Text(c.Text)})
	}
	for _, c := range r.Cases {
		one := c.junit(name)
		if one.Failure != nil {
			suite.Failures++
		}
		if one.Error != nil {
			suite.Errors++
		}
		suite.Cases = append(suite.Cases, one)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suites: []junitSuite{suite}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (c *Case) junit(class string) junitCase {
	one := junitCase{Name: escape.Text(c.Name), Class: escape.Text(class), Time: seconds(c.Took)}
	if c.Phase != "" {
		one.Class += "." + escape.Text(c.Phase)
	}
	if c.Failed == 0 {
		return one
	}
	problem := &junitProblem{Message: fmt.Sprintf("failed %d of %d times", c.Failed, c.Checks), Type: "expectation"}
	for _, p := range c.Problems {
		problem.Text += escape.Text(p.Error() + "\n" + p.Picture())
	}
	if len(c.Problems) > 0 {
		problem.Message = escape.Text(c.Problems[0].Message)
	}
	if len(c.Problems) > 0 && !c.Problems[0].Failed {
		problem.Type = "error"
		one.Error = problem
		return one
	}
	one.Failure = problem
	return one
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }

// quoted is s as JSON.
func quoted(s string) string { return string(escape.AppendJSON(nil, s)) }
