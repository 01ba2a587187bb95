"""Pictures of the dashboards as SVG, drawn here from what a Prometheus answers; no Grafana takes part.

- `series`: What a Prometheus answers to the queries of a panel, with the names of its legend.
- `numbers`: Values as people read them, by Grafana's units.
- `drawing`: Lines, areas, cells and text as SVG.
- `panels`: One panel of each kind.
- `page`: A whole dashboard.
"""
