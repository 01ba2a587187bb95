"""Pictures of the dashboards as SVG, drawn from the results of Prometheus queries, without Grafana.

- `series`: The results of a panel's queries, with the names of its legend.
- `numbers`: Readable values in Grafana's units.
- `drawing`: Lines, areas, cells and text as SVG.
- `panels`: One panel of each kind.
- `page`: A whole dashboard.
"""
