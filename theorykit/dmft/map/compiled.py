"""The derived map and its responses as compiled functions, of one state or of a batch."""

from functools import lru_cache

from sympy import Expr

from ...codegen import BATCH, CompiledFunction, compile_expressions
from ..derivation.derivation import derive


@lru_cache
def overlap() -> CompiledFunction:
    """m of a new token, from the attention before it; Eqs. (5), (6)."""
    return _compile_batched("overlap", m=derive().overlap)


@lru_cache
def attention() -> CompiledFunction:
    """A, from the query of the newest token, and the keys and values of all tokens attended; Eq. (2)."""
    return _compile_batched("attention", A=derive().attention)


@lru_cache
def overlap_response() -> CompiledFunction:
    """D = dm/dA, of a new token's overlaps m in the attention A before it."""
    return _compile_batched("overlap_response", D=derive().overlap_response)


@lru_cache
def attention_response() -> CompiledFunction:
    """The softmax weights s of the tokens in the context, and G, the derivative of A in their scores."""
    return _compile_batched("attention_response", s=derive().attention_weights, G=derive().attention_response)


@lru_cache
def row_response() -> CompiledFunction:
    """The block of the Jacobian for one token, through its key and value; Eq. (8)."""
    return _compile_batched("row_response", J=derive().row_response)


@lru_cache
def query_response() -> CompiledFunction:
    """The further term of the newest token's block, through its query; Eq. (8)."""
    return _compile_batched("query_response", J=derive().query_response)


@lru_cache
def noise() -> CompiledFunction:
    """N times the covariance of a new token's overlaps, of all families, given the attention before it; Eq. (9)."""
    return _compile_batched("noise", Q=derive().noise)


def _compile_batched(name: str, **outputs: Expr) -> CompiledFunction:
    symbols = {symbol for expression in outputs.values() for symbol in expression.free_symbols if not symbol.is_integer}
    return compile_expressions(name, outputs, sorted(symbols, key=lambda symbol: symbol.name), BATCH)
