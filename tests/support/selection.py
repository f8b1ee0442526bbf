"""Tests that `make check` and `make test` leave out, each with the one of the same subject that stays.

Chosen by the time they take. `kept_and_long` and `fast_and_slow` of `marks` serve where the choice is by meaning.
"""

import collections
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import pytest


class Rule(NamedTuple):
    """Tests of one file that get a mark.

    `tests` is a regular expression for all that follows `::` in a test's id. `stays` is the file, if it is another one,
    and the name of the test that is left.
    """

    file: str
    tests: str
    stays: str


# Left to `make truth`.
LONG: Final = (
    Rule("bench/test_ownership.py", "test_small_run_of_kactl", "bench/test_smoke.py::test_outage"),
    Rule("bench/test_race.py", "test_every_phase_is_completed_and_timed.*", "test_stopped_race_leaves_no_process"),
    Rule("bench/test_race.py", "test_incomplete_run_is_reported.*", "test_stopped_race_leaves_no_process"),
    Rule(
        "cli/test_drain_outlives_controllers.py",
        r"test_drain_outlives_killed_controllers.*\[(etcd|zookeeper)\]",
        "test_drain_outlives_killed_controllers_until_it_is_undone",
    ),
    Rule(
        "cli/test_drain_outlives_controllers.py",
        "test_drain_ends_when_the_broker_returns.*",
        "actors/test_stored_drains.py::test_drain_until_a_restart_ends_when_the_broker_has_registered_anew",
    ),
    Rule(
        "cli/test_life.py",
        "test_demo_prints_leader_changes.*",
        "test_walkthrough.py::test_walkthrough_ends_without_an_error",
    ),
    Rule("cli/test_network_zookeeper.py", r".*\[store\]", "test_planned_move_waits_for_the_earlier_leader"),
    # Contract suites: each wait for a lease once for each network and each store.
    *(
        Rule(
            "contracts/test_participants.py",
            rf"{suite}::test_(killed_leader_is_replaced|leader_that_hangs).*\[{sessions}\]",
            f"{suite}",
        )
        for suite, sessions in (
            ("TestParticipantsInMemory", "store"),
            ("TestParticipantsOverPipes", "store"),
        )
    ),
    Rule(
        "contracts/test_participants.py",
        "TestParticipantsOverPipes::test_killed_leader_is_replaced.*",
        "TestParticipantsOverPipes",
    ),
    *(
        Rule(
            "contracts/test_participants.py",
            f"TestParticipantsOverTcpAndSqlite::test_{tests}",
            "TestParticipantsOverTcpAndSqlite",
        )
        for tests in (r"killed_leader_is_replaced.*\[controller\]", r"leader_that_hangs.*\[store\]")
    ),
    *(
        Rule(
            "contracts/test_participants_servers.py",
            rf"{suite}::test_(killed_leader_is_replaced|leader_that_hangs).*\[controller\]",
            suite,
        )
        for suite in ("TestParticipantsWithEtcd", "TestParticipantsWithZooKeeper")
    ),
    *(
        Rule("contracts/test_participants_servers.py", rf"{suite}::test_killed_leader_is_replaced.*\[store\]", suite)
        for suite in ("TestParticipantsWithEtcd", "TestParticipantsWithZooKeeper")
    ),
    Rule(
        "dashboard/test_growing.py",
        "test_bars_grow_on_after.*",
        "dashboard/test_live.py::test_page_resumes_when_its_server_returns",
    ),
    Rule("dashboard/test_pages.py", r"test_every_page_is_accessible\[dark\]", "test_every_page_is_accessible"),
    Rule(
        "environment/test_clocks.py",
        "test_containers_with_other_boot_times.*",
        "stores/test_sqlite_other_boots.py::test_container_is_refused_while_the_host_uses_the_file",
    ),
    Rule(
        "environment/test_clocks.py",
        "test_steps_of_the_wall_clock.*",
        "stores/test_sqlite_clock_steps.py::test_different_wall_clocks_keep_each_others_sessions",
    ),
    Rule(
        "environment/test_start_orders.py",
        r"test_service_starts_in_every_order\[(?!workers-server-store|store-server-workers).*",
        "test_service_starts_in_every_order",
    ),
    Rule(
        "examples/test_examples.py",
        "test_rooms_of_a_killed_process_move",
        "test_shards_of_a_killed_process_are_worked_on",
    ),
    Rule("forensics/answers/test_commands.py", "test_report_is_printed_as_json", "forensics/report/test_collect.py"),
    Rule(
        "forensics/truth/test_recorded.py",
        r"test_best_estimate.*\[kraft-info\]",
        "test_best_estimate_is_near_the_clients_measurement",
    ),
    *(
        Rule("interop/test_first_use.py", tests, "test_topics_are_used_at_once_by_a_program_in_java")
        for tests in (r".*in_(python|java)\[no racks\]", r".*in_go\[racks\]")
    ),
    Rule("interop/test_harness.py", ".*", "interop/acceptance/test_05_and_06_brokers.py"),
    Rule("interop/test_soak.py", "test_no_record_is_lost.*", "interop/acceptance/test_05_and_06_brokers.py"),
    Rule(
        "participant/leases/test_watchdog.py",
        r"test_program_ends.*\[(thread-ignore|thread-wait|process-block|process-ignore).*",
        "test_program_ends_if_its_leader_runs_on",
    ),
    Rule(
        "runtime/test_delays.py",
        r"test_what_delays.*\[(a task swallows|a thread|main|stop).*",
        "test_what_delays_the_end_is_named_until_a_second_signal",
    ),
    Rule(
        "sim/sqlite/test_sqlite_runs.py",
        "test_equal_scripts_make_equal_runs",
        "sim/test_runs.py::test_generated_run_passes_and_is_deterministic",
    ),
    Rule("sim/test_corpus.py", r"test_script_passes\[SCN-(01|07|13|16|19)-sqlite\]", "test_script_passes"),
    Rule("sim/test_runs.py", r"test_generated_run_passes.*\[1\]", "test_generated_run_passes_and_is_deterministic"),
    Rule(
        "sim/test_seeds.py",
        "test_runs_are_equal_in_other_processes",
        "sim/test_runs.py::test_generated_run_passes_and_is_deterministic",
    ),
    Rule("sim/zookeeper/test_judge.py", r"test_random_scripts.*\[[123]\]", "test_random_scripts_have_equal_results"),
    Rule(
        "stores/zookeeper/connection/test_loss.py",
        r".*\[kazoo\]",
        "test_frequently_lost_connections_do_not_change_results",
    ),
    Rule("stores/zookeeper/test_outages.py", r".*\[kazoo\]", "test_server_is_killed_and_restarted_during_a_commit"),
    Rule(
        "testing/test_pytest_plugin.py",
        "test_suites_of_the_wheel.*",
        "testing/test_pytest_plugin.py::test_tutorial_finds_and_mends_the_bug",
    ),
    Rule(
        "transports/kafka/listener/test_attack.py",
        r"test_brokers_get_responses.*\[from other addresses\]",
        "test_brokers_get_responses_under_a_thousand_hostile_connections",
    ),
    Rule(
        "transports/kafka/listener/test_largest_requests.py",
        r"test_largest_requests_do_not_block.*\[(of a super user|without logins)\]",
        "test_largest_requests_do_not_block_the_loop",
    ),
    Rule(
        "transports/tcp/test_isr_processes.py",
        "test_killed_follower.*",
        "transports/tcp/test_processes.py::test_processes_over_tcp",
    ),
    Rule(
        "transports/tcp/test_soak.py",
        "test_leaderships_are_disjoint.*",
        "transports/tcp/test_processes.py::test_processes_over_tcp",
    ),
    Rule(
        "transports/test_host_names.py",
        r"test_participant_leaves_an_address.*\[(uvloop-False-(True|False)|asyncio-False-False)\]",
        "test_participant_leaves_an_address_that_does_not_greet",
    ),
    Rule(
        "website/test_tutorials.py",
        r"test_programs.*\[tutorials/measure\]",
        "test_programs_of_a_tutorial_print_what_it_shows",
    ),
    # The second of two loops that run the same code of kactl.
    Rule("", r".*\[(.*-)?uvloop(-.*)?\]", ""),
    *(
        Rule("bench/test_smoke.py", f"test_{name}", "test_election")
        for name in ("outage", "channel", "stores_in_turn", "latency", "security")
    ),
    Rule("cli/test_held_instances.py", "test_held_instance_stays.*", "test_hold_of_the_only_instance_ends_at_its_time"),
    Rule("cli/test_private_output.py", "test_tables_and_reports.*", "test_product_writes_files_by_one_function"),
    *(
        Rule("contracts/test_participants_servers.py", rf"{suite}::test_leader_that_hangs.*\[store\]", suite)
        for suite in ("TestParticipantsWithEtcd", "TestParticipantsWithZooKeeper")
    ),
    Rule("dashboard/test_history.py", "test_history_shows_states.*", "test_diagrams_show_what_the_tables_define"),
    Rule("dashboard/test_large.py", "test_(long_scroll|change_of).*", "test_first_rows_need_one_window"),
    Rule("dashboard/test_orders.py", r".*\[1440\]", "test_drained_broker_is_shown_with_its_order"),
    Rule("dashboard/test_pages.py", r"test_pages_fit.*\[3840.*", "test_pages_fit_the_width_of_the_screen"),
    Rule("dashboard/test_report.py", ".*on_a_desk", "test_report_is_short_on_a_phone_and_opens_part_by_part"),
    Rule("forensics/answers/test_commands.py", "test_report_of_logs_ingests.*", "forensics/test_tutorial.py"),
    Rule("interop/test_battery.py", "test_responses.*", "transports/kafka/listener/test_topic_handlers.py"),
    Rule("interop/test_first_use.py", ".*in_java.*", "test_topics_are_used_at_once_by_a_program_in_python"),
    Rule("interop/test_racks.py", ".*", "interop/test_first_use.py"),
    Rule("interop/test_scram_users.py", ".*", "interop/test_secure_cluster.py"),
    Rule(
        "runtime/test_forks.py",
        r"test_(parent_is_undisturbed.*\[(?!raise-leader).*|session_with_etcd.*\[exit\]|session_with_zookeeper.*)",
        "test_session_with_etcd_stays_the_parents",
    ),
    Rule(
        "sim/test_engine/brokers/test_participant.py",
        "test_generated_run_with_participants.*",
        "test_restarted_participant_serves_its_replicas_again",
    ),
    Rule("stores/zookeeper/test_outages.py", "test_long_server_pause.*", "test_silent_connection_suspends_the_session"),
    Rule(
        "transports/kafka/listener/test_logins.py",
        r"test_nothing_is_done_without_a_login.*settings[23]\]",
        "test_nothing_is_done_without_a_login",
    ),
    Rule("transports/tcp/test_crowd.py", ".*", "environment/test_one_address.py"),
    Rule(
        "transports/tcp/test_ownership_processes.py",
        "test_(any_worker|workers_that_come_late|worker_owns_only).*",
        "test_partitions_of_a_killed_worker_alone_move",
    ),
    Rule(
        "transports/tcp/test_process_stories.py",
        "test_leader_without_store_and_controller.*",
        "test_killed_controllers_change_no_leadership",
    ),
)

# Earlier brokers and the earlier protocol level: whole in `make old-brokers` and `make acceptance`.
OLD: Final = (
    *(
        Rule(f"interop/acceptance/test_{name}.py", r".*\[2\.6.*", "interop/acceptance/test_05_and_06_brokers.py")
        for name in (
            "03_visible_to_clients", "07_answers", "07_topics", "08_reassignment", "09_and_10_elections",
            "11_transactions", "12_to_15_controllers", "17_thousand", "whole_life",
        )
    ),
    Rule(
        "interop/old_brokers/test_versions.py",
        "test_(rolling_restart|drained|preferred|replicas_move|topic_grows|other_instance|controllership).*",
        "test_killed_broker_is_replaced_and_returns",
    ),
)  # fmt: skip

# Left out of `make check`, which repeats on each Python what `make test` runs on one: tests by file.
SLOW: Final = {
    "actors/test_lost_topic_ids.py": r".*\[(etcd|zookeeper).*",
    "actors/test_remote_sessions.py": "test_participants_that_fail_together.*",
    "admin/test_exposure.py": "test_stalled_handshakes.*",
    "cli/test_doctor.py": "test_unreachable_zookeeper.*",
    "cli/test_life.py": "test_(killed_broker|folder_or_port|address_in_use).*",
    "cli/test_names_from_outside.py": r".*\[.*forensics report\]",
    "cli/test_pki.py": "test_participant_of_another_program.*",
    "contracts/test_participants.py": "TestParticipantsInMemory::test_(killed_leader|leader_that_hangs).*",
    "decide/machines/test_placement.py": "test_leaders_and_replicas_stay_within.*",
    "fuzz/test_decoder_list.py": "test_every_decoder.*",
    "fuzz/test_runner.py": "test_slow_input.*",
    "mutation/test_mutation.py": "test_edits_are_noticed.*",
    "runtime/test_connecting.py": "test_several_silent.*",
    "runtime/test_forks.py": "test_participant_made_before_a_fork.*",
    "runtime/test_stderr.py": "test_(failure_of|program_with).*",
    "sim/test_engine/brokers/test_participant.py": "test_sessions_with_the_controller_survive.*",
    "sim/test_mutant_search.py": "test_search_runs_the_seeds.*",
    "sim/test_reach.py": "test_run_is_the_same.*",
    "stores/etcd/test_calls.py": r".*20000000.*",
    "stores/test_sqlite_clock_steps.py": "test_(different_wall_clocks|killed_process).*",
    "stores/test_sqlite_journal.py": "test_(commit_rejected|two_processes|long_journal).*",
    "stores/test_sqlite_other_boots.py": "test_container_is_refused.*",
    "stores/test_sqlite_schema.py": "test_older_process_cannot.*",
    "stores/zookeeper/connection/test_native.py": "test_reconnection_to_a_closing_server.*",
    "test_distribution.py": "test_packages_contain_no.*",
    "test_lint_rules.py": "test_no_test_expects_a_duration.*",
    "test_machine_pauses.py": "test_load_is_no_pause.*",
    "test_packaging.py": "test_every_(module|runtime_import).*",
    "transports/kafka/listener/test_logins.py": r"test_nothing_is_done_without_a_login.*settings1\]",
    "transports/tcp/test_links.py": "test_large_request_on_a_slow.*",
    "transports/tcp/test_served.py": "test_participant_does_not_continue.*",
    "transports/tcp/test_start_order.py": "test_participants_start_before.*",
    "transports/tcp/test_strangers.py": "test_flood_of_the_same_address.*",
    "transports/test_host_names.py": r"test_participant_leaves_an_address.*\[asyncio-False-True\]",
    "transports/test_internal_errors.py": r"test_session_goes_on\[tcp\]",
    "worker/test_worker.py": "test_(workers_of_one_store|handler_that_raises).*",
}  # fmt: skip

# Each mark with its rules: file, or nothing for all, and tests.
_RULES: Final = (
    *(("long", rule.file, re.compile(rule.tests)) for rule in LONG),
    *(("old", rule.file, re.compile(rule.tests)) for rule in OLD),
    *(("slow", file, re.compile(tests)) for file, tests in SLOW.items()),
)
UNUSED: Final = pytest.StashKey[list[str]]()


def mark(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the collected tests; store the rules that match none, of files that were collected."""
    by_file = collections.defaultdict[str, list[tuple[str, pytest.Item]]](list)
    for item in items:
        file, _, name = item.nodeid.removeprefix("tests/").partition("::")
        by_file[file].append((name, item))
    by_file[""] = [test for tests in by_file.values() for test in tests]
    config.stash[UNUSED] = [
        f"{file}::{tests.pattern}"
        for name, file, tests in _RULES
        if not _marked(name, tests, by_file.get(file, ())) and file and file in by_file
    ]


def _marked(name: str, tests: re.Pattern[str], items: Iterable[tuple[str, pytest.Item]]) -> int:
    matching = [item for test, item in items if tests.fullmatch(test)]
    for item in matching:
        item.add_marker(getattr(pytest.mark, name))
    return len(matching)
