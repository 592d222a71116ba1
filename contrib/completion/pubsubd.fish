# Completion of pubsubd's commands, options and values, for fish 3.1 or newer.
#
# Install it as pubsubd.fish in a folder of $fish_complete_path, such as
# /usr/local/share/fish/vendor_completions.d.
# The words come from the command itself, so they are those of the version that is installed.

function __pubsubd_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    # A line for each proposal: its type, a comma, the word, a tab, what it means.
    for proposal in (_PUBSUBD_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) \
            COMP_CWORD=$word $words[1] 2>/dev/null)
        set -l parts (string split --max 1 , -- $proposal)
        switch $parts[1]
            case plain
                printf '%s\n' $parts[2]
            case file
                __fish_complete_path $word
            case dir
                __fish_complete_directories $word
        end
    end
end

complete --command pubsubd --no-files --keep-order --arguments '(__pubsubd_complete)'
