"""Object implementation of the controller's decisions: the oracle and the baseline for the columnar code.

It uses dictionaries, lists and loops, one partition at a time. It follows the classic controller and shares only the
vocabulary of the package (names of states, refusals and elections). Tests compare it with the columns on random
clusters; two independent implementations that agree on every cluster confirm each other.
"""
