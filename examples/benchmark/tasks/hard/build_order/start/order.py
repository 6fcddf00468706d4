"""In which order to build.

>>> build_order({"app": ["lib"], "lib": []})
['lib', 'app']
"""


def build_order(needs):
    order = []

    def visit(part):
        for other in needs[part]:
            visit(other)
        if part not in order:
            order.append(part)

    for part in needs:
        visit(part)
    return order
