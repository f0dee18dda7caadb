"""Upstream's tests of the service that go through HTTP alone, as published with 0.2.37: each Harness of theirs is a berthd.

What is left out looks into their objects, replaces their functions, or counts what their double was asked.
"""

from __future__ import annotations

from typing import Iterator

import httpx
import pytest
import tests.test_policy_updates as policy
import tests.test_remote_sandbox as service
import tests.test_workspace_sandboxd as workspace

from live import HARNESS_TOKEN, LiveHarness, needs_the_double, only, without

assert service.SERVICE_TOKEN == HARNESS_TOKEN
service.Harness = workspace.Harness = LiveHarness  # type: ignore[misc,assignment]


@pytest.fixture
def harness() -> LiveHarness:
    return LiveHarness()


@pytest.fixture
def client(harness: LiveHarness) -> Iterator[httpx.Client]:
    with harness.client() as running:
        yield running


TestIndex = service.TestIndex
TestDashboard = service.TestDashboard
TestHealth = service.TestHealth
TestAuthentication = service.TestAuthentication
TestServicePolicy = needs_the_double(
    service.TestServicePolicy,
    test_unlimited_ceilings_are_reported_as_null="starts with no network mode, the engine's own network: refused, until sandboxes have networks",
)
TestRuntimePolicyReporting = needs_the_double(
    service.TestRuntimePolicyReporting,
    test_each_runtime_reports_its_effective_ceilings="adds a runtime to the double's own settings; ours come from the environment",
)
TestPerTenantCapacity = service.TestPerTenantCapacity
TestMalformedTokens = service.TestMalformedTokens
TestDanglingSymlinks = service.TestDanglingSymlinks
TestWorkspaceArchiveRoutes = service.TestWorkspaceArchiveRoutes
TestWorkspaceArchiveTrees = service.TestWorkspaceArchiveTrees
TestWorkspaceArchiveClient = service.TestWorkspaceArchiveClient
TestSessionLifecycle = only(
    service.TestSessionLifecycle,
    "test_open_rejects_a_runtime_outside_the_allowlist",
    "test_open_rejects_a_traversing_session_id",
    "test_open_conflicts_on_a_duplicate_id",
    "test_open_reports_capacity_with_429",
    "test_inspect_reports_liveness_and_idleness",
    "test_listing_shows_open_sessions_and_the_limit",
)
TestSessionActivity = only(
    service.TestSessionActivity,
    "test_a_fresh_session_has_no_activity",
    "test_operations_are_recorded_in_order",
    "test_after_returns_only_newer_entries",
    "test_long_targets_are_truncated",
    "test_activity_needs_authorization",
    "test_a_session_token_reads_only_its_own_activity",
)
TestSessionReuse = only(
    service.TestSessionReuse,
    "test_a_colliding_id_is_refused_by_default",
    "test_attaching_with_a_different_runtime_is_refused",
)
TestPurge = only(service.TestPurge, "test_purge_removes_the_workspace", "test_a_plain_close_keeps_the_workspace")
TestWorkspaceArchiveTree = without(
    service.TestWorkspaceArchiveTree,
    "test_a_subdirectory_that_cannot_be_read_marks_the_listing",
    "test_a_wide_directory_is_read_only_as_far_as_the_bound",
    "test_names_left_unread_mark_the_listing_even_short_of_the_bound",
)
TestOpenSessionCeiling = only(
    service.TestOpenSessionCeiling, "test_a_full_ceiling_of_working_sessions_refuses", "test_both_ceilings_are_visible_in_the_policy"
)
TestReadRequestBounds = service.TestReadRequestBounds
TestNativeFiles = only(
    service.TestNativeFiles,
    "test_the_policy_says_what_is_native",
    "test_without_a_workspace_root_nothing_is",
    "test_a_round_trip_through_every_route",
    "test_what_the_sandbox_must_resolve_is_handed_back",
    "test_path_errors_carry_their_type",
    "test_a_write_over_the_ceiling_is_the_sandboxs",
    "test_realpath_of_a_plain_path_and_of_a_link",
    "test_a_chunked_write_over_the_ceiling_is_counted_not_trusted",
    "test_a_chunked_write_within_the_ceiling_lands",
)
TestPersistedContainers = only(service.TestPersistedContainers, "test_the_setting_is_visible_in_the_policy")
TestTmpfsAndCpuShares = only(service.TestTmpfsAndCpuShares, "test_shares_are_visible_in_the_policy")
TestUncappedSessions = only(service.TestUncappedSessions, "test_an_uncapped_service_reports_it")
TestEviction = only(service.TestEviction, "test_the_setting_is_visible_in_the_policy")
TestContainerSweep = only(service.TestContainerSweep, "test_the_ttl_is_visible_in_the_policy")
TestUnprivilegedSandboxes = only(service.TestUnprivilegedSandboxes, "test_it_is_visible_in_the_policy")
TestOciRuntimeSelection = only(service.TestOciRuntimeSelection, "test_the_policy_reports_the_effective_runtime")

TestThePolicyEndpoint = policy.TestTheEndpoint
TestNothingToDo = only(policy.TestNothingToDo, "test_a_put_that_changes_nothing_still_answers_with_the_policy")
TestRunRoutesOnTheService = only(
    workspace.TestRunRoutesOnTheService,
    "test_attach_needs_a_session_id",
    "test_attach_without_kept_workspaces_finds_nothing",
    "test_a_run_id_must_be_a_uuid_hex",
)
