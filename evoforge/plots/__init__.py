"""Pictures of campaigns. matplotlib is imported when something is drawn, not before."""

from evoforge.plots.heatmap import HeatmapData, draw_heatmap, save_heatmap

__all__ = ["HeatmapData", "draw_heatmap", "save_heatmap"]
