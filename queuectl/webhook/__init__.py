"""The stateless mutating webhook for clusters without MutatingAdmissionPolicy."""
