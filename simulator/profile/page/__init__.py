"""A profile as one HTML file that needs no network: `write_html`. `columns` packs spans and
allocations for it, `report.js` draws them."""

from simulator.profile.page.page import write_html

__all__ = ["write_html"]
