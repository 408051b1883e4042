# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sphinx's settings for the site that build.py lays out. MyST reads the pages, which are Markdown for the repository as well."""

project = "Handover"
author = "The Handover maintainers"
copyright = "2026, the Handover maintainers"
html_title = "Handover"
html_baseurl = "https://livefleet.github.io/handover/"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["print.css"]
# People search for what a program has printed, and --rm is no dash.
smartquotes = False
exclude_patterns = ["README.md"]
# The reference names Ansible's own modules and environment variables, whose inventory of links is on the network.
nitpicky = False
suppress_warnings = ["ref.ref", "ref.term", "ref.envvar", "toc.not_included"]
