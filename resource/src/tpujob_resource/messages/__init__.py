"""Sentences for people: errors, reasons of conditions, remedies."""
