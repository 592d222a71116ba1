# Completion of pubsubd's commands, options and values, for bash 4.4 or newer.
#
# Source this file, or install it as /usr/share/bash-completion/completions/pubsubd.
# The words come from the command itself, so they are those of the version that is installed.

_pubsubd_completion() {
    local type value
    COMPREPLY=()
    # The answer has a line for each proposal: its type, a comma, the word.
    while IFS=, read -r type value; do
        case $type in
            plain) COMPREPLY+=("$value") ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
    done < <(
        COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _PUBSUBD_COMPLETE=bash_complete \
            "$1" 2>/dev/null
    )
}

complete -o nosort -F _pubsubd_completion pubsubd
