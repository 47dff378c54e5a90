"""From measurements to a model, and from the model to loads that were not measured. Pure.

    curve      the data for a fit
    models     M/M/1, M/M/m, closed networks, the load-dependent network, the universal scalability law
    search     least squares
    selection  cross-validation over client counts, and the model that it chooses
    stages     the service demand of a request at each stage between client and server
    scenario   the load and the worker slots for which a model predicts
    configurations  groups of rows, with one model each
    forecast   predictions with intervals
    demands    measured processor times and stage times of a request, by tier
    layered    the layered model of these demands, and its forecasts
    between    the layered model between two measured sizes or mixes
    percentiles  quantiles of response times, from a simulation of the layered network
    goals      the value of a setting that meets a goal
    setups     answers questions about workers, middlewares, think times and cores with it
    systems    fits every configuration of a table
    plan       simulates a prediction under assumptions that no formula covers
    outlook    predictions over the measured client counts and beyond, for a report
    text       the results as sentences

Formulas, assumptions and sources: docs/methods/fit.md.
"""

from knee.fit.configurations import configurations
from knee.fit.curve import CLIENTS_MIN, Curve, curve_of
from knee.fit.forecast import FittedSystem, Forecast
from knee.fit.goals import Goal
from knee.fit.models import Model, candidates
from knee.fit.outlook import Outlook, Outlooks, outlooks
from knee.fit.percentiles import Simulator
from knee.fit.plan import REPLICATIONS, Assumptions, Plan, parse_shape, simulate_plan
from knee.fit.scenario import Scenario
from knee.fit.search import Fit, fit_model
from knee.fit.selection import Selection, Trial, select
from knee.fit.setups import layered_forecasts, layered_systems, needs_layers, seek_settings
from knee.fit.stages import Stage, Stages, stage_demands
from knee.fit.systems import fit_systems
from knee.fit.text import (
    goal_sentence,
    parameter_sentence,
    render_layered,
    render_plan,
    render_sought,
    render_text,
    selection_sentence,
)

__all__ = [
    "CLIENTS_MIN",
    "REPLICATIONS",
    "Assumptions",
    "Curve",
    "Fit",
    "FittedSystem",
    "Forecast",
    "Goal",
    "Model",
    "Outlook",
    "Outlooks",
    "Plan",
    "Scenario",
    "Selection",
    "Simulator",
    "Stage",
    "Stages",
    "Trial",
    "candidates",
    "configurations",
    "curve_of",
    "fit_model",
    "fit_systems",
    "goal_sentence",
    "layered_forecasts",
    "layered_systems",
    "needs_layers",
    "outlooks",
    "parameter_sentence",
    "parse_shape",
    "render_layered",
    "render_plan",
    "render_sought",
    "render_text",
    "seek_settings",
    "select",
    "selection_sentence",
    "simulate_plan",
    "stage_demands",
]
