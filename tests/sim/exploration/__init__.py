"""Exhaustive exploration of the controller's protocol at small scope, without a log.

Three brokers, one partition, two controller instances: every reachable state up to a number of states, breadth first,
so that the first violation has the shortest way to it.

The decisions are those of `kactl.decide.machines` and `kactl.participant.checks`: each function is evaluated once for
all its inputs, in one columnar call (`tables`). What the handlers do around them (read, plan, commit, apply, send) is
written here (`controllers`, `brokers`), with a transition for every commit and every delivery.

    components, assignments   state of store, controllers and brokers
    scope                     bounds, and the first states
    model                     states as numbers, hashes, successors
    invariants, endings       checks
    explorer, scripts         search; counterexamples as text and as scripts of the simulator
    mutants                   the model without one of its safeguards

This is a model of kactl's own protocol, not a tool for models: nothing in it is of use to an application, so it is part
of the tests and not of `kactl.testing`.

Simplifications: the partition exists from the start and is not deleted; no directory fails; brokers use AlterPartition;
a controller reads the whole store in one transition when it is elected; UpdateMetadata is not modelled, except that a
leader learns the outcome of its proposals from it. Commits of assignments are never lost.
"""
