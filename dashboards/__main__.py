"""``python -m dashboards``: write dashboards/soak.json anew."""

from pathlib import Path

from dashboards.soak import to_json

if __name__ == "__main__":
    Path(__file__).with_name("soak.json").write_text(to_json(), encoding="utf-8")
