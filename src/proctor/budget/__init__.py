"""Money of a batch: what it may spend in this process, what each attempt reserves, and the guarded model.

A call asks for its worst-case cost before it is sent: `BudgetedModel.answer` → `Reservation.hold` →
`BatchBudget.cover` → `LedgerClient.draw` → the ledger in the store.
"""
