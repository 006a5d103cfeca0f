"""The VCL of one generation: backends and their probe, what is passed, piped and cached, routes, the marker. Pure.

What varnishd is started with, and hitch, are in ``varnish.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from soak.proxies.base import CACHE_HEADER, GENERATION_HEADER, ROUTE_HEADER, ProxyModel, route_names

MAIN = "main.vcl"
_ROUTES = "routes.vcl"
_ROUTES_A_SUBROUTINE = 32
"""A C compiler at -O2 takes 26 s for one subroutine of 1,000 routes, and 1.5 s for 32 of them."""
_PROBE_S = 0.5

_TEMPLATE = """\
vcl 4.1;
# Rendered by soak: generation {generation}. Changes are overwritten at the next reload.
import directors;
import std;

# A configuration knows no backend until its own probe has seen it.
probe alive {{
    .url = "/bytes/1";
    .interval = {probe_s}s;
    .timeout = {probe_s}s;
    .window = 2;
    .threshold = 1;
    .initial = 0;
}}
{backends}
sub vcl_init {{
    new origins = directors.round_robin();
{members}
}}
{extra}{routes}
sub vcl_recv {{
    unset req.http.{route_header};
    set req.backend_hint = origins.backend();
    if (req.http.Upgrade ~ "(?i)^websocket$") {{
        return (pipe);
    }}
    if (req.url ~ "^/single/") {{
        set req.url = regsub(req.url, "^/single/", "/");
        set req.backend_hint = {first};
        return (pass);
    }}
{routed}    if (req.url ~ "^/cache/" && (req.method == "GET" || req.method == "HEAD")) {{
        return (hash);
    }}
    return (pass);
}}

sub vcl_pipe {{
    set bereq.http.Upgrade = req.http.Upgrade;
    set bereq.http.Connection = req.http.Connection;
    return (pipe);
}}

sub vcl_backend_fetch {{
    unset bereq.http.{route_header};
}}

sub vcl_backend_response {{
    # What has expired is asked for again, and kept for a while to be revalidated by its ETag.
    set beresp.grace = 0s;
    if (beresp.http.ETag || beresp.http.Last-Modified) {{
        set beresp.keep = 10m;
    }}
}}

sub vcl_backend_error {{
    # The next backend is tried, unless that could deliver a request twice. One with a body may be sent again only as long as
    # none of the body has been read, that is if the backend refused to connect: Varnish knows, and refuses otherwise.
    if (bereq.retries < 2 && (bereq.method ~ "^(GET|HEAD|OPTIONS|PUT|DELETE)$" || bereq.http.Content-Length ~ "[1-9]")) {{
        return (retry);
    }}
}}

sub vcl_deliver {{
    call soak_mark;
    if (req.url ~ "^/cache/") {{
        if (obj.uncacheable) {{
            set resp.http.{cache_header} = "PASS";
        }} elseif (obj.hits > 0) {{
            set resp.http.{cache_header} = "HIT";
        }} else {{
            set resp.http.{cache_header} = "MISS";
        }}
    }}
}}

sub vcl_synth {{
    call soak_mark;
}}

sub soak_mark {{
    set resp.http.{generation_header} = "{generation}";
    if (req.http.{route_header}) {{
        set resp.http.{route_header} = req.http.{route_header};
    }}
}}
"""
_BACKEND = """\
backend {name} {{
    .host = "{host}";
    .port = "{port}";
    .probe = alive;
    .connect_timeout = 1s;
    .first_byte_timeout = 2s;
    .between_bytes_timeout = 2s;
}}
"""
_ROUTED = """\
    set req.http.{header} = std.tolower(regsub(req.http.Host, ":\\d+$", ""));
    if (req.http.{header} == "{server_name}") {{
        unset req.http.{header};
    }} else {{
        call soak_routes;
    }}
"""
_FOUND = """\
if (req.http.{header} ~ "^({names})\\.{site}$") {{
        call soak_routes_{i};
    }}"""
_ROUTE = """\
if (req.http.{header} == "{name}.{server_name}") {{
        set req.backend_hint = origins.backend();
        set req.http.{header} = "{name}";
    }}"""


def render_vcl(model: ProxyModel) -> Mapping[str, str]:
    """Return ``main.vcl``, and ``routes.vcl`` when there are routes."""
    broken = "soak_refuse_this;\n" if model.broken else ""
    main = _TEMPLATE.format(
        generation=model.generation,
        generation_header=GENERATION_HEADER,
        route_header=ROUTE_HEADER,
        cache_header=CACHE_HEADER,
        probe_s=_PROBE_S,
        backends="".join(_BACKEND.format(name=b.name, host=b.host, port=b.port) for b in model.backends),
        members="\n".join(f"    origins.add_backend({b.name});" for b in model.backends),
        first=model.backends[0].name,
        extra=broken + "".join(f"{line}\n" for line in model.extra.splitlines()),
        routes=f'include "./{_ROUTES}";\n' if model.routes else "",
        routed=_ROUTED.format(header=ROUTE_HEADER, server_name=model.server_name) if model.routes else "",
    )
    return {MAIN: main, _ROUTES: _render_routes(model)} if model.routes else {MAIN: main}


def _render_routes(model: ProxyModel) -> str:
    """Return a subroutine that finds the one in which a host is looked for, and those."""
    names = route_names(model.routes)
    chunks = [names[i : i + _ROUTES_A_SUBROUTINE] for i in range(0, len(names), _ROUTES_A_SUBROUTINE)]
    site = model.server_name.replace(".", r"\.")
    found = [
        _FOUND.format(header=ROUTE_HEADER, names="|".join(c), site=site, i=i) for i, c in enumerate(chunks)
    ]
    none = f"{{\n        unset req.http.{ROUTE_HEADER};\n    }}"
    text = "".join(_subroutine(f"soak_routes_{i}", _chain(model, c)) for i, c in enumerate(chunks))
    return text + _subroutine("soak_routes", " else ".join([*found, none]))


def _chain(model: ProxyModel, names: Sequence[str]) -> str:
    return " else ".join(
        _ROUTE.format(header=ROUTE_HEADER, name=name, server_name=model.server_name) for name in names
    )


def _subroutine(name: str, body: str) -> str:
    return f"sub {name} {{\n    {body}\n}}\n"
