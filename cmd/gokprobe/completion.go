package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// The scripts ask gokprobe itself, which answers the hidden last argument
// --generate-bash-completion with one word a line, flags with two dashes.
const (
	bashCompletion = `_gokprobe() {
    local cur=${COMP_WORDS[COMP_CWORD]}
    local before=("${COMP_WORDS[@]:0:COMP_CWORD}")
    if [[ $cur == -* ]]; then before+=("$cur"); fi
    local choices=$("${before[@]}" --generate-bash-completion 2>/dev/null)
    if [[ $cur == -* && $cur != --* ]]; then choices=${choices//--/-}; fi
    COMPREPLY=($(compgen -W "$choices" -- "$cur"))
}
complete -o default -F _gokprobe gokprobe
`
	zshCompletion = `#compdef gokprobe
_gokprobe() {
    local cur=${words[CURRENT]}
    local -a before choices
    before=("${(@)words[1,CURRENT-1]}")
    if [[ $cur == -* ]]; then before+=("$cur"); fi
    choices=("${(@f)$(_CLI_ZSH_AUTOCOMPLETE_HACK=1 "${before[@]}" --generate-bash-completion 2>/dev/null)}")
    if [[ $cur == -* && $cur != --* ]]; then choices=("${(@)choices/#--/-}"); fi
    if [[ -n ${choices[1]} ]]; then _describe gokprobe choices; else _files; fi
}
compdef _gokprobe gokprobe
if [[ $funcstack[1] == _gokprobe ]]; then _gokprobe "$@"; fi # loaded by the first completion
`
)

func completionCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a shell completion script",
		UsageText: "gokprobe completion bash|zsh|fish",
		Description: `Examples:
  source <(gokprobe completion bash)
  source <(gokprobe completion zsh)
  gokprobe completion fish | source`,
		BashComplete: func(*cli.Context) { fmt.Fprintln(std.out, "bash\nzsh\nfish") },
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("name one shell: gokprobe completion bash|zsh|fish")
			}
			script, err := completionScript(c.App, c.Args().First())
			if err != nil {
				return err
			}
			_, err = io.WriteString(std.out, script)
			return err
		},
	}
}

func completionScript(app *cli.App, shell string) (string, error) {
	switch shell {
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		text, err := app.ToFishCompletion()
		return strings.ReplaceAll(text, "`", ""), err // backticks mark the placeholder of a flag's value
	}
	return "", usagef("no completion for %q, choose bash, zsh or fish", shell)
}
