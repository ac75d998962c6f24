"""Admission cycles: heads are nominated and admitted, or preempt, or stay pending."""
