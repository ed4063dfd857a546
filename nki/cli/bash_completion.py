"""What bash offers while a user types an `nki` command, with words that hold a colon.

bash takes `:` for the end of a word (`COMP_WORDBREAKS`), so that `kernels.py:sc` is three words to
it, and puts what is offered behind the colon. The script here hands over the line as it is typed,
and takes what stands before the colon off each offer.
"""

from __future__ import annotations

from click.shell_completion import BashComplete

_SOURCE = r"""
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} before="" words number response completion type value
    IFS=$' \t\n' read -r -a words <<< "$line"
    number=${#words[@]}
    [[ $line == *[[:space:]] ]] || number=$((number - 1))

    local IFS=$'\n'
    local word=${line##*[[:space:]]}
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        before=${word%%"${word##*:}"}
    fi

    response=$(env COMP_WORDS="$line" COMP_CWORD=$number %(complete_var)s=bash_complete "$1")

    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("${value#"$before"}")
        fi
    done

    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class WholeLineBashComplete(BashComplete):
    """Completion for bash from the line up to the cursor, with words that end at spaces only."""

    source_template = _SOURCE
