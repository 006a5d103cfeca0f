"""The vocabulary: which outcomes are whose fault."""

from soak.model import Outcome


def test_only_ok_is_no_failure():
    """Everything else ended otherwise than promised."""
    assert [Outcome.OK] == [o for o in Outcome if not o.is_failure]


def test_our_own_failures_and_what_has_a_budget_of_its_own_are_not_the_proxys():
    """client_resource is ours; stale_reuse and tls_not_resumed have budgets of their own."""
    assert {Outcome.OK, Outcome.CLIENT_RESOURCE, Outcome.STALE_REUSE, Outcome.TLS_NOT_RESUMED} == {
        o for o in Outcome if not o.is_proxy_failure
    }


def test_outcomes_are_the_closed_enum_of_the_design():
    """Names are an interface: reports, metrics and stores of other versions carry them."""
    assert [
        "ok",
        "status_4xx",
        "status_5xx",
        "status_unexpected",
        "body_mismatch",
        "identity_mismatch",
        "dns",
        "connect_refused",
        "connect_reset",
        "connect_timeout",
        "connect_unreachable",
        "tls_handshake",
        "tls_certificate",
        "tls_timeout",
        "tls_not_resumed",
        "stale_reuse",
        "cut_before_response",
        "cut_mid_response",
        "response_timeout",
        "body_timeout",
        "protocol_error",
        "h2_goaway",
        "h2_refused_stream",
        "client_resource",
    ] == [o.value for o in Outcome]
