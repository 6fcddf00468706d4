# What pages of the manual need before their commands: functions for `<!-- setup: … -->`.

# name WORD VALUE: from here on, WORD in the commands of the page means VALUE.
name() { printf '%s\t%s\n' "$1" "${2:?no value of $1}" >> "$HOME/.names"; }

# run RUN…: runs of the same six questions on two scripted models; the second model answers half of them.
run() {
  printf 'rules: [{reply: a timeout; permission denied pip install}]' > "$HOME/always.yaml"
  printf 'rules: [{match: "[135]", reply: a timeout}, {reply: nothing}]' > "$HOME/half.yaml"
  for id; do
    printf '%s\n' "runId: $id" 'matrix:' \
      '- {prompt: [q1, q2, q3, q4, q5, q6], model: [scripted/always, scripted/half], expect: {contains: timeout}}' \
      > "$HOME/.run.yaml"
    proctor batch "$HOME/.run.yaml" >/dev/null 2>&1 || [ $? = 1 ] || return
  done
}

# plan FILE [RUN]: a plan of a prompt.
plan() { printf '%s\n' ${2:+"runId: $2"} 'matrix: [{prompt: [a, b], model: scripted/echo}]' > "$1"; }

# session RUN: the ID of a session.
session() { proctor show "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["items"][0]["sessionId"])'; }

# evaluation NAME RUN EVALUATOR: evaluate a run without a model; prints the ID of the evaluation.
evaluation() {
  printf 'def fixed(event):\n    return {"label": "Yes", "value": 1.0}\n' > "$HOME/fixed.py"
  proctor evaluate start --name "$1" --run "$2" --evaluator fixed:fixed --json 2>/dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["batchEvaluationId"])'
}

# repository FOLDER: a git repository with one commit.
repository() {
  mkdir -p "$1" && git -C "$1" init -q -b main && printf 'def one():\n    return 1\n' > "$1/one.py" &&
    git -C "$1" add -A && git -C "$1" commit -qm begin
}

# history FOLDER: a repository whose last commit fixes something and tests it.
history() {
  mkdir -p "$1" && (cd "$1" && git init -q -b main && echo __pycache__ > .gitignore &&
    printf 'def total(prices):\n    return sum(prices)\n' > cart.py &&
    printf 'import unittest, cart\nclass T(unittest.TestCase):\n    def test_sum(self): self.assertEqual(cart.total([1, 2]), 3)\n' > test_cart.py &&
    git add -A && git commit -qm 'A cart' &&
    printf 'def total(prices, discount=0):\n    return sum(prices) * (100 - discount) / 100\n' > cart.py &&
    printf '    def test_discount(self): self.assertEqual(cart.total([10, 10], discount=25), 15)\n' >> test_cart.py &&
    git commit -qam 'Totals can have a discount, in percent')
}

# records EXPRESSION FILE: a record of another tool, as the tests of its reader have it.
records() {
  mkdir -p "$(dirname "$2")" &&
    PYTHONPATH="$(dirname "${BASH_SOURCE[0]}")/../tests/records" "$PYTHON" -c "
import json, sys, records_by_hand as by_hand
record = by_hand.$1
print('\n'.join(map(json.dumps, record)) if isinstance(record, list) else json.dumps(record))" > "$2"
}
