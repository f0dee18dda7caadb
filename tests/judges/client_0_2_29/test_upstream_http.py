"""Upstream's tests of the service and of RemoteSandbox that go through HTTP alone, as published with 0.2.29: each Harness of theirs is a berthd.

What is left out looks into their objects, replaces their functions, counts what their double was asked, or waits two minutes.
Four of those taken can pass on the double only, and fail on the reference's own server as well once it is a process of its own.
"""

from __future__ import annotations

from typing import Iterator

import httpx
import pytest
import tests.test_remote_sandbox as service

from live import HARNESS_TOKEN, LiveHarness, needs_the_double, only, without

assert service.SERVICE_TOKEN == HARNESS_TOKEN
service.Harness = LiveHarness  # type: ignore[misc,assignment]

ROOT_OF_THE_DOUBLE = "the double's root is its work dir; a real one has both"


@pytest.fixture
def harness() -> LiveHarness:
    return LiveHarness()


@pytest.fixture
def client(harness: LiveHarness) -> Iterator[httpx.Client]:
    with harness.client() as running:
        yield running


# Of these, fifty need no service but one with its defaults; upstream out of process passes 46 of them.
TestIndex = service.TestIndex
TestHealth = service.TestHealth
TestAuthentication = service.TestAuthentication
TestSessionLifecycle = only(
    service.TestSessionLifecycle,
    "test_open_rejects_a_runtime_outside_the_allowlist",
    "test_open_rejects_a_traversing_session_id",
    "test_open_conflicts_on_a_duplicate_id",
    "test_open_reports_capacity_with_429",
    "test_inspect_reports_liveness_and_idleness",
    "test_listing_shows_open_sessions_and_the_limit",
)
TestOperationsOverHttp = only(service.TestOperationsOverHttp, "test_write_rejects_content_that_is_not_base64")
TestRemoteSandboxAgainstService = needs_the_double(
    only(
        service.TestRemoteSandboxAgainstService,
        "test_execute_round_trip",
        "test_write_read_and_edit",
        "test_write_and_read_bytes_survives_non_utf8",
        "test_exists",
        "test_ls_and_glob",
        "test_grep_returns_matches",
        "test_stop_before_start_is_a_no_op",
    ),
    test_execute_round_trip="the double answers a command with its own text",
    test_ls_and_glob=ROOT_OF_THE_DOUBLE,
    test_grep_returns_matches=ROOT_OF_THE_DOUBLE,
)
TestRemoteSandboxFailureHandling = service.TestRemoteSandboxFailureHandling
TestClientGrepParsing = needs_the_double(
    only(service.TestClientGrepParsing, "test_matches_are_mapped_to_grep_match_rows"),
    test_matches_are_mapped_to_grep_match_rows=ROOT_OF_THE_DOUBLE,
)
TestSessionActivity = only(
    service.TestSessionActivity,
    "test_a_fresh_session_has_no_activity",
    "test_operations_are_recorded_in_order",
    "test_the_log_records_targets_and_outcomes_not_payloads",
    "test_after_returns_only_newer_entries",
    "test_long_targets_are_truncated",
    "test_activity_needs_authorization",
    "test_a_session_token_reads_only_its_own_activity",
)
TestSessionReuse = without(service.TestSessionReuse, "test_reuse_attaches_to_the_open_session")
TestMalformedSuccessResponses = service.TestMalformedSuccessResponses
TestMalformedTokens = service.TestMalformedTokens
TestReadRequestBounds = service.TestReadRequestBounds
TestReuseAfterStop = without(service.TestReuseAfterStop, "test_a_second_session_can_be_opened_after_stopping")
TestClientWaitsOutTheServiceCeiling = without(service.TestClientWaitsOutTheServiceCeiling, "test_a_command_with_no_timeout_waits_that_long_plus_slack")

# And these, each with settings of its own.
TestDashboard = service.TestDashboard
TestServicePolicy = needs_the_double(
    service.TestServicePolicy,
    test_unlimited_ceilings_are_reported_as_null="starts with no network mode, the engine's own network: refused, until sandboxes have networks",
)
TestPerTenantCapacity = service.TestPerTenantCapacity
TestPurge = only(service.TestPurge, "test_purge_removes_the_workspace", "test_a_plain_close_keeps_the_workspace")
TestWorkspaceArchiveRoutes = service.TestWorkspaceArchiveRoutes
TestWorkspaceArchiveClient = service.TestWorkspaceArchiveClient
TestDanglingSymlinks = service.TestDanglingSymlinks
TestOpenSessionCeiling = only(
    service.TestOpenSessionCeiling, "test_a_full_ceiling_of_working_sessions_refuses", "test_both_ceilings_are_visible_in_the_policy"
)
TestOperationsAreBoundedByTheServiceCeiling = only(service.TestOperationsAreBoundedByTheServiceCeiling, "test_an_operation_inside_the_ceiling_still_answers")
TestPersistedContainers = only(service.TestPersistedContainers, "test_the_setting_is_visible_in_the_policy")
TestTmpfsAndCpuShares = only(service.TestTmpfsAndCpuShares, "test_shares_are_visible_in_the_policy")
TestUncappedSessions = only(service.TestUncappedSessions, "test_an_uncapped_service_reports_it")
TestEviction = only(service.TestEviction, "test_the_setting_is_visible_in_the_policy")
TestContainerSweep = only(service.TestContainerSweep, "test_the_ttl_is_visible_in_the_policy")
TestUnprivilegedSandboxes = only(service.TestUnprivilegedSandboxes, "test_it_is_visible_in_the_policy")
TestOciRuntimeSelection = only(service.TestOciRuntimeSelection, "test_the_policy_reports_the_effective_runtime")
