"""Tests of the buildpack; those of the chart and of the rules lie beside these."""
