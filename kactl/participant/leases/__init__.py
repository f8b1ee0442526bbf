"""Leases of leaderships: the local time until which a leader may act, and the tokens that order leaders.

    session ──renewals──▶ pacemaker ──▶ lease ◀──check── leader ◀── the application

`terms` computes deadlines, the pacemaker renews and ends leases, a leader is what an application holds.
"""
