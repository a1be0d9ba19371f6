"""Lifelong: tasks that arrive one after another, one budget that stays bounded."""
