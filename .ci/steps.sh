# Sourced by the scripts beside it: runs commands as named steps, times them, counts tests.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
# The counts below are read from the tests' closing lines, so no colour codes.
export CARGO_TERM_COLOR=never

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

passed=0  # tests that passed so far
skipped=0 # steps that could not run

fail() {
    printf '\nfailed: %s\n%d passed, 1 failed, %d skipped\n' "$1" "$passed" "$skipped"
    exit 1
}

# step TITLE COMMAND…: runs a command or function; the first that fails ends the script.
step() {
    local title=$1 start=$SECONDS status count
    shift
    printf '\n== %s\n' "$title"
    # Not in a condition, where `set -e` would not hold inside functions.
    set +e
    (
        set -e
        "$@"
    ) 2>&1 | tee "$scratch/log"
    status=${PIPESTATUS[0]}
    set -e
    count=$(awk '/^test result: / { n += $4 } END { print n + 0 }' "$scratch/log")
    passed=$((passed + count))
    printf -- '-- %s: %d s' "$title" "$((SECONDS - start))"
    if ((count)); then printf ', %d tests' "$count"; fi
    printf '\n'
    if ((status)); then fail "$title"; fi
}

# test_step TITLE COMMAND…: a step that must run at least one test.
test_step() {
    local before=$passed
    step "$@"
    if ((passed == before)); then fail "$1 ran no test"; fi
}

# loom PREEMPTIONS: the loom models, exploring up to so many preemptions a run.
loom() {
    LOOM_MAX_PREEMPTIONS=$1 RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
        cargo test --locked -p holoflow-core --lib --release -- loom_
}

# The closing line. Nothing is printed after it.
finish() {
    printf '\nall steps: %d s\n%d passed, 0 failed, %d skipped\n' "$SECONDS" "$passed" "$skipped"
}
