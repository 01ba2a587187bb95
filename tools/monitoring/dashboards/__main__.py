"""Writes the JSON of the dashboards to the chart: `python -m tools.monitoring.dashboards`."""

from tools.monitoring.dashboards import ALL, FOLDER, text

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, dashboard in ALL.items():
        (FOLDER / f"{name}.json").write_text(text(dashboard))
