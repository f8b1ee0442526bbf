"""Application code of partitions: the order of its calls, their time limits, and what becomes of their failures.

incarnation ──orders──▶ hosting ──▶ one actor per partition ──calls──▶ PartitionHandler
                               └──▶ listener calls ────────────────▶ Listener
"""
